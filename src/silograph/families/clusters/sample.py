"""Tables and a plan to start clustered models from."""

from silograph.families.samples import writer

OPTION, HELP = "hospitals", "Six hospitals' wards by diagnosis and a plan to start from."
write = writer("silograph.families.clusters", "silograph.data.clusters", "write_sample_hospitals")
