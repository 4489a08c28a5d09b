"""Tell before the queue, and without a GPU, whether an image will work at a site."""

from argosy.check.judging import Finding, judge_image
from argosy.check.looking import Contents, parse_contents
from argosy.check.story import check_image

__all__ = ["Contents", "Finding", "check_image", "judge_image", "parse_contents"]
