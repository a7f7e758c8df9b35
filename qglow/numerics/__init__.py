"""The meaning of every number: numpy reference of quantization and of every operator.

One module per operator family; float tensors are float32, int8 tensors are signed. Layouts
are those of ONNX (NCHW images, OIHW filters). What compiled code must give bit for bit is
what these functions give. Functions of single numbers are in `scalar`, written once for numpy,
LLVM and C.
"""
