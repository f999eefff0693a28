"""The URL of the calculator."""

from django.urls import URLPattern, path

from controlplane.dashboard.calculator import calculator

urlpatterns: list[URLPattern] = [
    path("calculator", calculator.calculator, name="calculator"),
]
