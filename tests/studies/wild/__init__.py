"""Small samplers with bugs that well-known libraries had, and with errors planted into samplers from the literature.

``wild.yaml`` is the list of the ports, with references; every class is right as it is and wrong with its ``bug``.
"""
