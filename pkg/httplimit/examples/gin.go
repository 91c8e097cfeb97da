package examples

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/offpath-io/offpath/pkg/httplimit"
)

// Gin limits what an engine has a route for. What ChargeOn makes goes around the whole engine,
// which is an http.Handler: gin's handlers write to a writer of its own.
func Gin(checker httplimit.Checker) (http.Handler, error) {
	limit, err := httplimit.New(checker, httplimit.Options{User: user})
	if err != nil {
		return nil, err
	}
	engine := gin.New()
	engine.Use(ginMiddleware(limit))
	engine.GET("/hello/:name", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	return engine, nil
}

// ginMiddleware goes on to the next handler if the request may pass.
func ginMiddleware(limit *httplimit.Limit) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath() // where the attribute route is looked for
		passed := false
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })
		if limit.Handler(next).ServeHTTP(c.Writer, c.Request); !passed {
			c.Abort()
		}
	}
}
