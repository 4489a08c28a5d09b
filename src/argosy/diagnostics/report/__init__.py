"""The report of a job: one self-contained HTML page, or an archive for a support ticket."""
