"""`python -m holdfast.cli`: the command line without an installed script."""

from holdfast.cli.main import main

main()
