"""Both demos, one after the other."""

from collections.abc import Sequence

import edit_photo
import gated_classifier

from models.common import options


def main(argv: Sequence[str] | None = None) -> tuple[edit_photo.Result, gated_classifier.Result]:
    """The command line."""
    chosen = options(__doc__ or "", argv)
    return edit_photo.run(chosen.quick, chosen.out), gated_classifier.run(chosen.quick, chosen.out)


if __name__ == "__main__":
    main()
