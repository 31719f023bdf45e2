"""fleet: a gateway and its replicas: the models of other processes, served like models loaded here.

In: what replicas report of themselves once a second. Out: the answers of whichever replica has most of a prompt in its
prefix cache and least to do, moved to another when one is lost. Joins the server as an extension: neither server nor
engine knows of it. Read gateway.py, then remote_model.py and remote_answer.py; replica.py is the other side.
"""
