"""A second reader of ward volumes, written from docs/format.md and docs/format-keybag.md alone.

It shares no code with ward. Where the two disagree about a volume, one of them, or the document, is wrong: the vectors in
Tests/Vectors and the volumes in Tests/GoldenVolumes are read by both. It reads and never writes: `store` is the only
module that touches a volume.
"""
