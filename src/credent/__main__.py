"""`python -m credent` is the command line."""

from credent.cli import main

if __name__ == "__main__":
    main()
