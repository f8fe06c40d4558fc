"""Groups: regions around anchors that one launch runs, and products one after another in one launch."""
