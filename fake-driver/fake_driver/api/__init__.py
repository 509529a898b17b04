"""Wire contracts with the kubelet: the .proto files and the stubs that ../../generate.py makes of them."""
