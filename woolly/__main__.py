"""`python -m woolly` is the command `woolly`."""

import sys

from woolly.cli.main import main

sys.exit(main())
