"""Operations of ``dev.engine``: ONNX models as plans, executed by an engine on refs."""

from callboard.kernel.engine.actor import *
from callboard.kernel.engine.context import ExecutionContext as ExecutionContext
from callboard.kernel.engine.messages import *
from callboard.kernel.engine.plan import EnginePlan as EnginePlan
from callboard.kernel.engine.plugins import IPluginV3 as IPluginV3
from callboard.kernel.engine.plugins import register_plugin as register_plugin
from callboard.kernel.engine.precision import IBuilderConfig as IBuilderConfig
from callboard.kernel.engine.precision import lower as lower
from callboard.kernel.engine.trt import TrtBuild as TrtBuild
from callboard.kernel.engine.trt import TrtRuntime as TrtRuntime
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
