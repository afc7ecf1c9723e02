"""What whoever writes an adapter or a store inherits to prove it: suites of tests, for pytest.

Not a platform, and nothing that a bot loads: they need pytest, pytest-asyncio and hypothesis, which
`pip install 'chinwag[testing]'` brings.
"""
