"""The roofline of a device: its rates, from data sheets or from `jaxsparse calibrate`, and the
least time of a kernel that follows from them.
"""
