"""The performance figures: what a chat-bot and its store cost, beside the machine's limit and
beside what people use instead. `make bench` runs all of it; nothing of the product imports this
folder.

* `store.py`    the program: one process a run, tables, the page
* `figures.py`, `whole_figures.py`  which runs each figure needs, and what they must come to
* `effort.py`   how much is run
* `runs.py`     one run, in its process; `turns.py` and `loads.py` are what it times and checks
* `ours.py`     chinwag's store;  `floors.py`  sqlite3 alone, writing `rows.py`
* `peers.py`    other libraries
* `whole.py`    runs of whole bots (`stacks.py`), beside their Telegram and Claude (`outside.py`)
* `subject.py`  what a run asks of each of them
* `said.py`     what is said in all of them
* `measure.py`  clocks and counters, and what machine this is
* `report.py`   goals, verdicts and tables
"""
