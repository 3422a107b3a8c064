"""Scale matrix: an active hub, a standby, PostgreSQL, an S3 server and VictoriaMetrics, each killed
with -9 and stopped for 30 s while nodes report every second and commands are under way.

`python -m tests.faults.scale` takes all rows in a quarter of an hour, prints them as a table,
writes build/scale.json beside it and ends with 1 if a row has failed. With `--quick`: two rows, in
a minute and a half; `--nodes N`: so many of 8 GPUs; with words: rows with them in their name.
"""
