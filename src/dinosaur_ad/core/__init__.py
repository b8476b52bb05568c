"""The algorithm as pure array functions, NumPy and torch alike. No files, no models.

Read in the paper's order: features (Eq. 4), coreset and memory (Eq. 5), scoring (Eq. 6-7), pooling (Eq. 8), routing
(Eq. 9), calibration (thresholds). Not in the paper: drift and descriptor_drift (parts or images that no longer look
like the learned ones), adaptive_threshold.
"""
