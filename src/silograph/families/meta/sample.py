"""Tables and a plan to start a shared start from."""

from silograph.families.samples import writer

OPTION, HELP = "devices", "24 motion sensors, eight new ones, and a plan to start from."
write = writer("silograph.families.meta", "silograph.data.class_clients", "write_sample_devices")
