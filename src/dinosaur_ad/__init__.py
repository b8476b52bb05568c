"""DINOSaur: visual inspection that keeps working while products and conditions change."""

__version__ = "0.1.0"
