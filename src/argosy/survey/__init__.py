"""Write the profile of a site that has none, by asking the cluster; what it did not say is a question."""

from argosy.survey.asking import Ask, survey_site

__all__ = ["Ask", "survey_site"]
