"""ARC data: strict reading, augmentation, the compiled data set and its batches (numpy only)."""
