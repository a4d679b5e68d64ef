"""Administration: topics and the cluster, the doctor, damaged logs, and the recovery of a lost database."""
