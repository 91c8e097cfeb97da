// Package lint holds what cannot run on a developer's machine against its own tools: the chart
// against Helm and the types of Kubernetes, compose.yaml against Compose's loader, the Dockerfile
// against BuildKit's linter, and all flags in them against the commands. It is a module of its own,
// since these are large.
package lint
