"""The trace on disk and in memory: format, writing, reading, checking, and exchange with other tools."""
