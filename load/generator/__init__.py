"""The load generator: a process of its own under Locust, told by `orders.json`, reporting `generator.json`.

Nothing outside this package may import locust, gevent or geventhttpclient: importing locust patches the
standard library for gevent. Start it with `python -m load.generator ORDERS`.
"""
