// SQLite databases with a protection class, by GRDB. Begin with `ProtectedDatabase`.
@_exported import GRDB
