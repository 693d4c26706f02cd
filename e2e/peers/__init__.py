"""The processes that the end-to-end tests talk to: etcd, Dynamo, the router, and the client side."""
