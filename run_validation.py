"""`woolly validate` under the name that the founding scripts call: python run_validation.py --quick"""

import sys

from woolly.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["validate", *sys.argv[1:]]))
