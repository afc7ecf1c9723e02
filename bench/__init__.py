"""The performance figures: what a chat-bot's store costs, beside the machine's limit and beside what
people use instead. `make bench` runs all of it; nothing of the product imports this folder.

* `store.py`    the program: which runs, in which order, how often
* `runs.py`     one run, in a process of its own: what is timed, and what is checked
* `ours.py`     chinwag's store;  `floors.py`  bare sqlite3;  `peers.py`  other libraries
* `said.py`     what is said in all of them
* `measure.py`  clocks and counters, and what machine this is
* `report.py`   goals, verdicts and tables
"""
