// SQLite databases with a protection class, based on GRDB. Begin with `ProtectedDatabase`.
@_exported import GRDB
