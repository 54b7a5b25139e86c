"""What can be wrong with bytes that should be ward's, and with what a person asked for."""


class FormatError(Exception):
    """Bytes that are not what the format says. `code` is one of the five below, `description` says what was read."""

    #: The bytes are no structure of ward's.
    NOT_RECOGNISED = "not recognised"
    #: A later version than this reader knows made it: refused, without guessing (format.md §10).
    NEWER_VERSION = "newer version"
    #: A length, a checksum or a value is wrong.
    MALFORMED = "malformed"
    #: A tag or a MAC does not match.
    AUTHENTICATION_FAILED = "authentication failed"
    #: Authentic, but different from an undisturbed file, without a doubtful epoch as the reason (format.md §8).
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


# Exit statuses, the same as ward's.
SOME_FAILED, USAGE, INPUT, NO_INPUT, CANT_CREATE, NOT_A_VOLUME, WRONG_PASSCODE, DAMAGED, NO_DEVICE_KEY = (
    1, 64, 65, 66, 73, 10, 12, 14, 78)
