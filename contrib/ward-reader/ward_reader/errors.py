"""What can be wrong with bytes that should be ward's, and with what a person asked for."""


class FormatError(Exception):
    """Bytes that are not what the format says. `code` is one of the five below, `description` says what was read."""

    #: Not a structure of ward's at all.
    NOT_RECOGNISED = "not recognised"
    #: Made by a later version than this reader knows: refused, never guessed at (format.md §10).
    NEWER_VERSION = "newer version"
    #: Wrong length, wrong checksum, impossible value.
    MALFORMED = "malformed"
    #: A tag or a MAC does not match.
    AUTHENTICATION_FAILED = "authentication failed"
    #: Authentic, but not as an undisturbed file has it, and no doubtful epoch excuses it (format.md §8).
    NOT_EXCUSED = "not excused"

    def __init__(self, code, description):
        super().__init__(description)
        self.code = code
        self.description = description


class ReaderError(Exception):
    """Why nothing can be read: `ward-reader: error: WHAT`, then `ward-reader: hint: HINT`; `status` is the exit status."""

    def __init__(self, what, hint, status):
        super().__init__(what)
        self.hint = hint
        self.status = status


# Exit statuses, as ward's own.
SOME_FAILED, USAGE, INPUT, NO_INPUT, CANT_CREATE, NOT_A_VOLUME, WRONG_PASSCODE, DAMAGED, NO_DEVICE_KEY = (
    1, 64, 65, 66, 73, 10, 12, 14, 78)
