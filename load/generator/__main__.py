"""`python -m load.generator ORDERS [--web PORT] [--processes N] [any option of Locust]`.

Runs Locust on `locustfile.py`, headless unless `--web` is given, with everything on loopback that was not
asked to be elsewhere. Exit code 0: there is a report; 3: there is one that must not be trusted, and says why;
2: the orders are wrong; 4: the generator itself failed.
"""

from __future__ import annotations

import sys

from harness.errors import UsageError
from load.generator.arguments import locust_arguments


def main() -> None:
    """Run the generator."""
    try:
        line = locust_arguments(sys.argv[1:])
    except UsageError as error:
        print(error, file=sys.stderr)  # noqa: T201 - this is the program's own word to its caller
        sys.exit(int(error.exit_code))
    # Importing Locust patches the standard library for gevent: late enough to be quick with an error, and
    # before anything that uses ssl.
    from locust.main import main as locust_main

    sys.argv = ["locust", *line]
    locust_main()


if __name__ == "__main__":
    main()
