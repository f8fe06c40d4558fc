"""Matrix products on processors and on GPUs through mma.sync, MFMA or plain multiply-adds; tiles and their machine models.

Hopper's products, which share the copy engine and wgmma, are in ``hopper``.
"""
