"""The public names of ``callboard.serve``, as ``callboard/__init__.pyi`` has those of callboard."""

from callboard.serve.app import App as App
from callboard.serve.errors import BadModelResult as BadModelResult
from callboard.serve.errors import BadRequest as BadRequest
from callboard.serve.errors import HttpError as HttpError
from callboard.serve.errors import NotReady as NotReady
from callboard.serve.generation.answers import add_answers as add_answers
from callboard.serve.http.limits import EdgeLimits as EdgeLimits
from callboard.serve.http.rights import RIGHTS as RIGHTS
from callboard.serve.http.rights import Right as Right
from callboard.serve.http.starting import Tls as Tls
from callboard.serve.http.starting import listening as listening
from callboard.serve.http.starting import serve as serve
from callboard.serve.tensors import DATATYPES as DATATYPES
from callboard.serve.tensors import Tensor as Tensor
