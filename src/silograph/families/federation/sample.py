"""Tables and a plan to start a graph federation from."""

from silograph.families.samples import writer

OPTION, HELP = "clinics", "Ten regions of clinics and a plan to start from."
write = writer("silograph.families.federation", "silograph.data.federation", "write_sample_clinics")
