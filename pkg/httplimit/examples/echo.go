package examples

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/offpath-io/offpath/pkg/httplimit"
)

// Echo limits what a server has a route for. What ChargeOn makes goes around the whole server,
// which is an http.Handler: echo answers errors when its middlewares have returned.
func Echo(checker httplimit.Checker) (http.Handler, error) {
	limit, err := httplimit.New(checker, httplimit.Options{User: user})
	if err != nil {
		return nil, err
	}
	server := echo.New()
	server.Use(echoRoute, echo.WrapMiddleware(limit.Handler))
	server.GET("/hello/:name", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	return server, nil
}

// echoRoute puts the route where the attribute is looked for.
func echoRoute(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Request().Pattern = c.Path()
		return next(c)
	}
}
