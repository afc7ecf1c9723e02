"""Where snapshots live: one module or package per database, none of which knows another.

A store implements the protocols of `core.store` and is proved by the contract suite in
`bots/contracts/store.py`. It never parses a key and never turns unreadable into empty.
`urls.py` finds the one that ``[store] url`` names.
"""
