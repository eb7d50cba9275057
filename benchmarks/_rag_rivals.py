"""The same query with trivial stages in other frameworks: embed, retrieve, rerank, prompt, generate."""

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["haystack", "llama_index"]

Ask = Callable[[str], Any]


def haystack(passages: list[str]) -> Ask:
    """A pipeline of Haystack with components that do nothing else."""
    core = importlib.import_module("haystack")
    component, document = core.component, core.Document
    documents = [document(content=text) for text in passages]

    @component
    class Embed:
        @component.output_types(vector=list[float])
        def run(self, text: str) -> dict[str, Any]:
            return {"vector": [1.0, 2.0]}

    @component
    class Retrieve:
        @component.output_types(documents=list[document])
        def run(self, vector: list[float]) -> dict[str, Any]:
            return {"documents": documents}

    @component
    class Rerank:
        @component.output_types(documents=list[document])
        def run(self, documents: list[document]) -> dict[str, Any]:
            return {"documents": documents}

    @component
    class Generate:
        @component.output_types(replies=list[str])
        def run(self, prompt: str) -> dict[str, Any]:
            return {"replies": ["answer [1]"]}

    builders = importlib.import_module("haystack.components.builders")
    template = "{% for each in documents %}[{{ loop.index }}] {{ each.content }}\n{% endfor %}{{ question }}"
    pipeline = core.Pipeline()
    stages = {"embed": Embed(), "retrieve": Retrieve(), "rerank": Rerank(), "generate": Generate()}
    for name, stage in stages.items():
        pipeline.add_component(name, stage)
    pipeline.add_component("prompt", builders.PromptBuilder(template=template, required_variables="*"))
    pipeline.connect("embed.vector", "retrieve.vector")
    pipeline.connect("retrieve.documents", "rerank.documents")
    pipeline.connect("rerank.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "generate.prompt")
    return lambda question: pipeline.run({"embed": {"text": question}, "prompt": {"question": question}})


def llama_index(passages: list[str]) -> Ask:
    """A query engine of LlamaIndex with a retriever, a postprocessor and a model that do nothing else."""
    core = importlib.import_module("llama_index.core")
    core.Settings.tokenizer = str.split  # the default downloads its vocabulary
    schema = importlib.import_module("llama_index.core.schema")
    retrievers = importlib.import_module("llama_index.core.retrievers")
    processors = importlib.import_module("llama_index.core.postprocessor.types")
    engines = importlib.import_module("llama_index.core.query_engine")
    model = importlib.import_module("llama_index.core.llms").MockLLM(max_tokens=2)
    found = [schema.NodeWithScore(node=schema.TextNode(text=text), score=1.0) for text in passages]

    class Retrieve(retrievers.BaseRetriever):  # type: ignore[misc]
        def _retrieve(self, query_bundle: Any) -> Any:
            return found

    class Rerank(processors.BaseNodePostprocessor):  # type: ignore[misc]
        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            return nodes

    engine = engines.RetrieverQueryEngine.from_args(Retrieve(), llm=model, node_postprocessors=[Rerank()])
    found_by: Ask = engine.query
    return found_by
