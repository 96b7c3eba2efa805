# Renders the templates and variables from stdin with Jinja2, in the setup of transformers'
# _compile_jinja_template.
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's text for training; rendering ignores it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(template, variables):
    try:
        return {"text": template.render(**variables)}
    except jinja2.TemplateError as e:
        return {"raised": e.message} if type(e) is jinja2.TemplateError else {"failed": repr(e)}
    except Exception as e:
        return {"failed": repr(e)}


question = json.load(sys.stdin)
env = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = datetime.datetime.fromisoformat(question["now"]).strftime
template = env.from_string(question["template"])
json.dump([render(template, variables) for variables in question["variables"]], sys.stdout)
