"""SciPy's and scikit-learn's functions run on tensors and are differentiated.

They read their switch when they are imported, so each library has a process of its own. Older ones
run less: for libraries that they do not know, they ask NumPy.
"""

import os
import subprocess
import sys

import pytest

COMMON = """
import numpy as np
import lucid_gpu

lucid_gpu.set_default_dtype(lucid_gpu.float64)  # numbers that become arrays are float64, as NumPy's
rng = np.random.default_rng(0)
X = np.abs(rng.normal(size=(3, 5))) + 0.2
Y = X @ np.asarray([1.0, -2.0, 0.5, 0.0, 1.0])


def hold(name, function):
    x = lucid_gpu.tensor(X, requires_grad=True)
    found, wanted = function(x), np.asarray(function(X.copy()))
    assert isinstance(found, lucid_gpu.Tensor), (name, type(found))
    np.testing.assert_allclose(found.detach().numpy(), wanted, 1e-8, 1e-10, err_msg=name)
    weights = np.cos(np.arange(found.numel())).reshape(found.shape)
    (found * lucid_gpu.tensor(weights)).sum().backward()
    way, h = np.sin(np.arange(X.size)).reshape(X.shape), 1e-6
    ends = [(np.asarray(function(X + s * h * way)) * weights).sum() for s in (1, -1)]
    steep = (x.grad.numpy() * way).sum()
    np.testing.assert_allclose(steep, (ends[0] - ends[1]) / (2 * h), 1e-4, 1e-6, err_msg=name)
"""

SCIPY = """
from scipy import cluster, differentiate, fft, integrate, optimize, signal, special, stats
from scipy.optimize import elementwise
from scipy.spatial.transform import Rotation

hold("logsumexp", lambda x: special.logsumexp(x, axis=1))
hold("softmax", lambda x: special.softmax(x, axis=1))
for name in ("gammaln", "ndtr", "log_ndtr", "expit", "entr", "erf", "psi", "log1p"):
    hold(name, lambda x: getattr(special, name)(x))
hold("xlogy", lambda x: special.xlogy(x, x))
hold("rel_entr", lambda x: special.rel_entr(x, x[:, ::-1]))
hold("zscore", lambda x: stats.zscore(x, axis=1))
for name in ("skew", "kurtosis", "gmean", "hmean", "variation", "sem", "entropy", "circmean"):
    hold(name, lambda x: getattr(stats, name)(x, axis=1))
hold("pearsonr", lambda x: stats.pearsonr(x, x**2 - 3 * x, axis=1).pvalue)
hold("ttest_1samp", lambda x: stats.ttest_1samp(x, 0.5, axis=1).pvalue)
hold("f_oneway", lambda x: stats.f_oneway(x[0], x[1] + 0.5).pvalue)
hold("chisquare", lambda x: stats.chisquare(x / x.sum(1)[:, None] * 5, axis=1).pvalue)
hold("betaincc", lambda x: special.betaincc(2.0, 3.0, x / 5))
hold("moment", lambda x: stats.moment(x, 3, axis=1))
hold("trapezoid", lambda x: integrate.trapezoid(x, axis=1))
hold("cumulative_simpson", lambda x: integrate.cumulative_simpson(x, axis=1))
hold("rosen", lambda x: optimize.rosen(x[:, 0]))
hold("rfft", lambda x: abs(fft.rfft(x)))
hold("hilbert", lambda x: abs(signal.hilbert(x, axis=1)))
hold("fftconvolve", lambda x: signal.fftconvolve(x, x, axes=1))
hold("whiten", lambda x: cluster.vq.whiten(x))
hold("rotations", lambda x: Rotation.from_rotvec(x[:, :3]).apply(x[:, 1:4]))
hold("derivative", lambda x: differentiate.derivative(lambda t: t**3, x).df)
root = lambda x: elementwise.find_root(lambda t, a: t * t - a, (x * 0, x * 0 + 9), args=(x,)).x
hold("find_root", root)
"""

SKLEARN = """
import sklearn
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, pairwise, roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures

like = lambda x: lucid_gpu.tensor(Y) if isinstance(x, lucid_gpu.Tensor) else Y
with sklearn.config_context(array_api_dispatch=True):
    hold("PCA", lambda x: PCA(2, svd_solver="full").fit(x).explained_variance_)
    hold("Ridge", lambda x: Ridge(solver="svd").fit(x, like(x)).coef_)
    hold("MinMaxScaler", lambda x: MinMaxScaler().fit_transform(x))
    made = PolynomialFeatures(2).fit_transform(lucid_gpu.tensor(X, requires_grad=True))
    try:  # it multiplies columns of an array that it goes on writing, which PyTorch refuses, too
        made.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("PolynomialFeatures")
    hold("rbf_kernel", lambda x: pairwise.rbf_kernel(x, x[:2] + 1))
    hold("errors", lambda x: mean_squared_error(x, x * 1.1, multioutput="raw_values"))
    area = roc_auc_score(lucid_gpu.tensor(Y > 1), lucid_gpu.tensor(X[:, 0]))
    assert area == roc_auc_score(Y > 1, X[:, 0])
    one = mean_squared_error(lucid_gpu.tensor(Y), lucid_gpu.tensor(Y * 1.1))
    assert isinstance(one, float) and abs(one - mean_squared_error(Y, Y * 1.1)) < 1e-12
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "since", "script"),
    [("scipy", "1.17", SCIPY), ("sklearn", "1.9", SKLEARN)],
    ids=["scipy", "sklearn"],
)
def test_programs_for_any_array_library(library, since, script):
    pytest.importorskip(library, since)
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COMMON + script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
