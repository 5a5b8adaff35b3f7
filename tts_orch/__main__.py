"""`python -m tts_orch` is the `tts-orch` command."""

from tts_orch.cli import main

if __name__ == "__main__":
    main()
