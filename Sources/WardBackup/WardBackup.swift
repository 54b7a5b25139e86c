// WardBackup: what of a volume belongs into a backup.
//
// It reads the backing directory itself, with the volume key and nothing of a mount. `BackupWalk`
// finds the files. `BackupSnapshot` compares two walks. `BackupList` writes paths as backup
// programs read them. Read `BackupWalk` first.
