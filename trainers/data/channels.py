"""The channels of a folder's images, checked before the first trial."""

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache

from trainers.data import headers
from trainers.data.headers import Unreadable
from trainers.data.listing import Listing, Undecodable

REMEDY = "Repair or remove it, or use dataset.skip_broken=true to skip and count all such files"
SMALL_BYTES = 10 * 10**6
"""Size of a folder whose images are all decoded before the first trial, which takes less than a
second."""


@lru_cache(maxsize=4)
def count_channels(listing: Listing, convert_to: int | None, skip_broken: bool) -> int:
    """Return the channels of all images, from their headers: `convert_to`, or if it is None the
    common number.

    The images of a small folder are decoded, too. Raises ValueError, for the user, with the first
    file that is no image or that differs in channels from the majority.
    """
    channels = _read_channels(listing, skip_broken)
    if not channels:
        raise _nothing_readable(listing)
    check_each_class(listing, channels)
    if convert_to is not None:
        return convert_to
    usual, count = Counter(channels.values()).most_common(1)[0]
    odd = next((row for row, depth in channels.items() if depth != usual), None)
    if odd is not None:
        raise ValueError(
            f"{listing.name(odd)} has {channels[odd]} channel{'s' * (channels[odd] > 1)}, but"
            f" {count} of {len(listing.files)} images have {usual}\nUse dataset.channels=3 (colour)"
            " or dataset.channels=1 (grey) to convert all images"
        )
    if usual == 2:
        raise ValueError(
            f"{listing.name(next(iter(channels)))} is grey and transparent. Use dataset.channels=1,"
            " or 3"
        )
    return usual


def _read_channels(listing: Listing, skip_broken: bool) -> dict[int, int]:
    """Return the channels of each readable image, by row."""
    is_small = listing.size_bytes <= SMALL_BYTES
    channels: dict[int, int] = {}
    for row in range(len(listing.files)):
        try:
            channels[row] = headers.check(listing.file(row), decode=is_small).channels
        except Unreadable as error:
            if not skip_broken:
                raise ValueError(
                    f"{listing.name(row)} cannot be read as an image ({error})\n{REMEDY}"
                ) from None
    return channels


def check_each_class(listing: Listing, rows: Collection[int]) -> None:
    """Raise Undecodable unless the readable files, `rows`, contain a training image of each
    class."""
    labels = {listing.labels[row] for row in rows if row < listing.splits["train"]}
    missing = next(
        (name for label, name in enumerate(listing.classes) if label not in labels), None
    )
    if missing is not None:
        raise Undecodable(
            f"{listing.path}: no training image of class {missing!r} can be read, so"
            " skip_broken=true would skip all\nRepair an image, or remove the folder of this class"
        )


def first_channels(listing: Listing) -> int:
    """Return the channels of the first image with a readable header, for a folder whose images
    agree."""
    for row in range(len(listing.files)):
        with suppress(Unreadable):
            return headers.read(listing.file(row)).channels
    raise _nothing_readable(listing)


def _nothing_readable(listing: Listing) -> ValueError:
    return ValueError(
        f"dataset.path={listing.path}: none of its {len(listing.files)} images can be read"
    )
