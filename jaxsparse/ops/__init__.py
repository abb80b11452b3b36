"""The public operations, one file an op."""

from jaxsparse.ops.bounded_matmul import bounded_matmul as bounded_matmul
from jaxsparse.ops.grouped_matmul import grouped_matmul as grouped_matmul
from jaxsparse.ops.masked_conv import masked_conv as masked_conv
from jaxsparse.ops.masked_conv_stack import masked_conv_stack as masked_conv_stack
from jaxsparse.ops.masked_dense import masked_dense as masked_dense
from jaxsparse.ops.masked_dense import token_index as token_index
from jaxsparse.ops.masked_matmul import masked_matmul as masked_matmul
from jaxsparse.ops.pruned_conv import pruned_conv as pruned_conv
from jaxsparse.ops.pruned_matmul import pruned_matmul as pruned_matmul
from jaxsparse.ops.route import Routing as Routing
from jaxsparse.ops.route import route as route
