"""The pages of docs/ that are printed from the code, by their paths there."""

from tools.reference.commands import commands
from tools.reference.differences import differences
from tools.reference.errors import errors
from tools.reference.findings import findings
from tools.reference.model_config import model_config
from tools.reference.project_file import project_file
from tools.reference.python_api import python_api
from tools.reference.server_differences import server_differences

PAGES = {
    "errors.md": errors,
    "findings.md": findings,
    "reference/commands.md": commands,
    "reference/marpack-yaml.md": project_file,
    "reference/model-config.md": model_config,
    "reference/differences.md": differences,
    "reference/serve-differences.md": server_differences,
    "reference/python-api.md": python_api,
}
